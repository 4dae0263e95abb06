"""What is handed from one function of `tf.contrib.gan` to the next: models, losses, operations and numbers of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anabranch.api.train import SessionRunHook


class GANModel(NamedTuple):
    """A generator and a discriminator, with what they gave.

    Attributes:
        generator_inputs: what the generator was called with: a tensor, or a list or dictionary of tensors.
        generated_data, generator_variables, generator_scope, generator_fn: its output and what it is.
        real_data: what the discriminator tells the output from.
        discriminator_real_outputs, discriminator_gen_outputs: the discriminator's for real and for generated data.
        discriminator_variables, discriminator_scope, discriminator_fn: what it is.
    """

    generator_inputs: Any
    generated_data: Any
    generator_variables: Any
    generator_scope: Any
    generator_fn: Any
    real_data: Any
    discriminator_real_outputs: Any
    discriminator_gen_outputs: Any
    discriminator_variables: Any
    discriminator_scope: Any
    discriminator_fn: Any


class InfoGANModel(NamedTuple):
    """The same, where the discriminator also says which part of the inputs the data were made from.

    Attributes:
        structured_generator_inputs: that part, a list of tensors.
        predicted_distributions: a distribution for each of them.
        discriminator_and_aux_fn: the discriminator with both outputs.
    """

    generator_inputs: Any
    generated_data: Any
    generator_variables: Any
    generator_scope: Any
    generator_fn: Any
    real_data: Any
    discriminator_real_outputs: Any
    discriminator_gen_outputs: Any
    discriminator_variables: Any
    discriminator_scope: Any
    discriminator_fn: Any
    structured_generator_inputs: Any
    predicted_distributions: Any
    discriminator_and_aux_fn: Any


class ACGANModel(NamedTuple):
    """The same, where the discriminator also classifies.

    Attributes:
        one_hot_labels: the classes of the batch.
        discriminator_real_classification_logits, discriminator_gen_classification_logits: what it says of them.
    """

    generator_inputs: Any
    generated_data: Any
    generator_variables: Any
    generator_scope: Any
    generator_fn: Any
    real_data: Any
    discriminator_real_outputs: Any
    discriminator_gen_outputs: Any
    discriminator_variables: Any
    discriminator_scope: Any
    discriminator_fn: Any
    one_hot_labels: Any
    discriminator_real_classification_logits: Any
    discriminator_gen_classification_logits: Any


class CycleGANModel(NamedTuple):
    """Two models that make data of each kind from data of the other.

    Attributes:
        model_x2y, model_y2x: the two.
        reconstructed_x, reconstructed_y: data that went through both.
    """

    model_x2y: GANModel
    model_y2x: GANModel
    reconstructed_x: Any
    reconstructed_y: Any


class StarGANModel(NamedTuple):
    """A generator from any of several domains to any, and a discriminator that also says which domain data are of.

    Attributes:
        input_data, input_data_domain_label: real data [batch, height, width, channels] and their domains, one hot.
        generated_data, generated_data_domain_target: what they became, and the domains that were aimed at.
        reconstructed_data: what becomes of that on the way back.
        discriminator_input_data_source_predication, discriminator_generated_data_source_predication: real or not.
        discriminator_input_data_domain_predication, discriminator_generated_data_domain_predication: of which domain.
        generator_variables, generator_scope, generator_fn: what the generator is.
        discriminator_variables, discriminator_scope, discriminator_fn: what the discriminator is.
    """

    input_data: Any
    input_data_domain_label: Any
    generated_data: Any
    generated_data_domain_target: Any
    reconstructed_data: Any
    discriminator_input_data_source_predication: Any
    discriminator_generated_data_source_predication: Any
    discriminator_input_data_domain_predication: Any
    discriminator_generated_data_domain_predication: Any
    generator_variables: Any
    generator_scope: Any
    generator_fn: Any
    discriminator_variables: Any
    discriminator_scope: Any
    discriminator_fn: Any


class GANLoss(NamedTuple):
    """The losses of a model, scalars."""

    generator_loss: Any
    discriminator_loss: Any


class CycleGANLoss(NamedTuple):
    """The losses of both models of a `CycleGANModel`."""

    loss_x2y: GANLoss
    loss_y2x: GANLoss


class GANTrainOps(NamedTuple):
    """The operations of training.

    Attributes:
        generator_train_op, discriminator_train_op: a step of each.
        global_step_inc_op: counts a step of both.
        train_hooks: hooks that have to be there while they are run.
    """

    generator_train_op: Any
    discriminator_train_op: Any
    global_step_inc_op: Any
    train_hooks: Sequence[SessionRunHook] = ()


class GANTrainSteps(NamedTuple):
    """How many steps of each are made before the global step is counted."""

    generator_train_steps: int
    discriminator_train_steps: int


#: makes hooks from the operations of training
HooksFunction = Callable[[GANTrainOps], list[SessionRunHook]]
