"""An optimizer that follows the variables with their moving averages, which are saved in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn, TensorLike
from anabranch.contrib.opt_centers import named_variables
from anabranch.contrib.opt_inner import OptimizerWithInner


class MovingAverageOptimizer(OptimizerWithInner):
    """Lets another optimizer train, and keeps the moving averages of the variables, which often predict better.

    Save checkpoints with `swapping_saver` while training: it saves the averages under the names of the variables, so
    that a model that is restored by an ordinary `tf.train.Saver` uses them.

    Args:
        opt: the optimizer that computes and applies the gradients.
        average_decay: a number: see `tf.train.ExponentialMovingAverage`.
        num_updates: see `tf.train.ExponentialMovingAverage`.
        sequential_update: whether the averages follow after the update; if not, they are computed beside it, and may
            take values from before or after it.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> opt = tf.contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.25), average_decay=0.5)
        >>> step = opt.minimize(tf.square(w))
        >>> saver = opt.swapping_saver()
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(tf.global_variables())
        [np.float32(0.5), np.float32(0.75)]
    """

    def __init__(
        self,
        opt: tf.train.Optimizer,
        average_decay: TensorLike = 0.9999,
        num_updates: TensorLike | None = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(opt, False, opt.get_name())
        self._ema = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._swapped_variable_name_map: dict[str, str] | None = None
        self._sequential_update = sequential_update

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Adds the updates of the optimizer inside, and those of the averages.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented after the updates.
            name: of the operations of the optimizer inside.

        Returns:
            The operation that does all that.
        """
        pairs = list(grads_and_vars)
        update = self._opt.apply_gradients(pairs, global_step=global_step, name=name)
        variables = [var for grad, var in pairs if grad is not None]
        with tf.control_dependencies([update] if self._sequential_update else []):
            averaging = self._ema.apply(variables)
        self._swapped_variable_name_map = {}
        for var in variables:
            average = self._ema.average(var)
            assert average is not None, f"{var.name} was given to the moving average, which has none of it"
            self._swapped_variable_name_map[var.op.name] = average.op.name
            self._swapped_variable_name_map[average.op.name] = var.op.name
        return tf.group(update, averaging, name="train_with_avg")

    def swapping_saver(
        self,
        var_list: Iterable[Any] | Mapping[str, Any] | None = None,
        name: str = "swapping_saver",
        **kwargs: PassedOn,
    ) -> tf.train.Saver:
        """A saver that saves the averages under the names of the variables, and the variables under the averages'.

        Call it after `minimize` or `apply_gradients`, when all variables are there.

        Args:
            var_list: what to save, as of `tf.train.Saver`; None: all global variables. Of a mapping, what has the name
                of a variable is swapped.
            name: of the saver.
            **kwargs: further arguments of `tf.train.Saver`.

        Raises:
            RuntimeError: it is called before.
            ValueError: `var_list` has a variable, and not its average.
        """
        if self._swapped_variable_name_map is None:
            raise RuntimeError("Must call apply_gradients or minimize before creating the swapping_saver")
        named = named_variables(tf.global_variables() if var_list is None else var_list)
        by_name = {key: var for key, var in named.items() if not isinstance(var, list)}
        by_name.update({part.op.name: part for var in named.values() if isinstance(var, list) for part in var})
        swapped = {
            key: [self._find_swapped_variable(by_name, part.op.name, part) for part in var]
            if isinstance(var, list)
            else self._find_swapped_variable(by_name, key, var)
            for key, var in named.items()
        }
        return tf.train.Saver(swapped, name=name, **kwargs)

    def _find_swapped_variable(self, by_name: Mapping[str, Any], name: str, var: tf.Variable) -> Any:
        other = (self._swapped_variable_name_map or {}).get(name)
        if other is None:
            return var
        if other not in by_name:
            raise ValueError(
                f"Variable to swap {other} is not part of variables to save, while {name} is. "
                "This breaks MovingAverageOptimizer."
            )
        return by_name[other]
