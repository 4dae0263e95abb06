from anabranch.contrib.gan.classifier_scores import (
    classifier_score as classifier_score,
    classifier_score_from_logits as classifier_score_from_logits,
    diagonal_frechet_distance,
    frechet_classifier_distance as frechet_classifier_distance,
    frechet_classifier_distance_from_activations as frechet_classifier_distance_from_activations,
    kernel_classifier_distance as kernel_classifier_distance,
    kernel_classifier_distance_and_std as kernel_classifier_distance_and_std,
    kernel_classifier_distance_and_std_from_activations as kernel_classifier_distance_and_std_from_activations,
    kernel_classifier_distance_from_activations as kernel_classifier_distance_from_activations,
    mean_only_frechet_classifier_distance_from_activations as mean_only_frechet_classifier_distance_from_activations,
)
from anabranch.contrib.gan.picture_summaries import (
    add_cyclegan_image_summaries as add_cyclegan_image_summaries,
    add_gan_model_image_summaries as add_gan_model_image_summaries,
    add_gan_model_summaries as add_gan_model_summaries,
    add_image_comparison_summaries as add_image_comparison_summaries,
    add_regularization_loss_summaries as add_regularization_loss_summaries,
    image_grid as image_grid,
    image_reshaper as image_reshaper,
)
from anabranch.contrib.gan.sliced_wasserstein import sliced_wasserstein_distance as sliced_wasserstein_distance

diagonal_only_frechet_classifier_distance_from_activations = diagonal_frechet_distance
