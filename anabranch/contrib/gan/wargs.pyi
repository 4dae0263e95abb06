from anabranch.contrib.gan.penalties import (
    combine_adversarial_loss as combine_adversarial_loss,
    cycle_consistency_loss as cycle_consistency_loss,
    mutual_information_penalty as mutual_information_penalty,
    wasserstein_gradient_penalty as wasserstein_gradient_penalty,
)
from anabranch.contrib.gan.scalar_losses import (
    acgan_discriminator_loss as acgan_discriminator_loss,
    acgan_generator_loss as acgan_generator_loss,
    least_squares_discriminator_loss as least_squares_discriminator_loss,
    least_squares_generator_loss as least_squares_generator_loss,
    minimax_discriminator_loss as minimax_discriminator_loss,
    minimax_generator_loss as minimax_generator_loss,
    modified_discriminator_loss as modified_discriminator_loss,
    modified_generator_loss as modified_generator_loss,
    wasserstein_discriminator_loss as wasserstein_discriminator_loss,
    wasserstein_generator_loss as wasserstein_generator_loss,
)
