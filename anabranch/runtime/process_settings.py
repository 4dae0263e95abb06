"""What a program may set for its process: `tf.config.optimizer`, `tf.config.threading`, and their like.

TensorFlow reads these settings for steps outside of sessions, of which there are none here; those of a session are in
its ConfigProto. They are kept, so that a program reads what it has set.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.core.dtypes import DType

_OPTIMIZER_OPTIONS: Final = frozenset(
    (
        *("layout_optimizer", "constant_folding", "shape_optimization", "remapping", "arithmetic_optimization"),
        *("dependency_optimization", "loop_optimization", "function_optimization", "debug_stripper"),
        *("disable_model_pruning", "scoped_allocator_optimization", "pin_to_host_optimization"),
        *("implementation_selector", "auto_mixed_precision", "disable_meta_optimizer", "min_graph_nodes"),
    )
)
_POLICIES: Final = ("explicit", "warn", "silent", "silent_for_int32")


class ProcessSettings:
    """The settings, each with the function that reads and the one that sets it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """All as at the beginning."""
        self._jit = False
        self._optimizer: dict[str, Any] = {}
        self._half_dtype: DType | None = None
        self._inter_op = self._intra_op = 0
        self._policy = "silent"
        self._synchronous = True
        self._log_placement = False

    def get_jit(self) -> bool:
        """Whether `set_jit` asked for compilation; every step is compiled by XLA, whatever it says.

        Example:
            >>> tf.config.optimizer.get_jit()
            False
        """
        return self._jit

    def set_jit(self, enabled: bool) -> None:
        """Keeps what `get_jit` gives."""
        self._jit = bool(enabled)

    def get_experimental_options(self) -> dict[str, Any]:
        """The options that were set.

        Example:
            >>> tf.config.optimizer.get_experimental_options()
            {}
        """
        return dict(self._optimizer)

    def set_experimental_options(self, options: dict[str, Any]) -> None:
        """Keeps options of TensorFlow's graph optimizer, which is not the one that runs here.

        Of them, sessions that are made later heed "auto_mixed_precision": what profits is computed in half precision.

        Raises:
            ValueError: there is no option of that name.
        """
        unknown = sorted(set(options) - _OPTIMIZER_OPTIONS)
        if unknown:
            raise ValueError(f"there is no optimizer option {unknown[0]!r}; there are {sorted(_OPTIMIZER_OPTIONS)}")
        self._optimizer.update(options)

    def set_half_precision(self, enabled: bool, dtype: DType | None = None) -> None:
        """Whether sessions that are made later compute in half precision what profits.

        Args:
            dtype: float16 or bfloat16; None: as the devices of the session suggest.
        """
        self._optimizer["auto_mixed_precision"] = enabled
        self._half_dtype = dtype if enabled else None

    def half_precision(self) -> tuple[bool, DType | None]:
        """Whether half precision is asked for, and which dtype, if one was named."""
        return bool(self._optimizer.get("auto_mixed_precision")), self._half_dtype

    def get_inter_op_parallelism_threads(self) -> int:
        """How many threads were asked for; 0: as many as there are processors.

        Example:
            >>> tf.config.threading.get_inter_op_parallelism_threads()
            0
        """
        return self._inter_op

    def set_inter_op_parallelism_threads(self, num_threads: int) -> None:
        """Keeps what `get_inter_op_parallelism_threads` gives; sessions take theirs from their ConfigProto."""
        self._inter_op = _count(num_threads)

    def get_intra_op_parallelism_threads(self) -> int:
        """How many threads were asked for; 0: as many as there are processors.

        Example:
            >>> tf.config.threading.get_intra_op_parallelism_threads()
            0
        """
        return self._intra_op

    def set_intra_op_parallelism_threads(self, num_threads: int) -> None:
        """How many threads an operation may use, for sessions whose ConfigProto does not say; before the first one."""
        self._intra_op = _count(num_threads)

    def get_device_policy(self) -> str:
        """What eager operations do with tensors of other devices: nothing here, where none is eager.

        Example:
            >>> tf.config.experimental.get_device_policy()
            'silent'
        """
        return self._policy

    def set_device_policy(self, device_policy: str | None) -> None:
        """Keeps what `get_device_policy` gives.

        Raises:
            ValueError: there is no such policy.
        """
        if device_policy not in (*_POLICIES, None):
            raise ValueError(f"{device_policy!r} is no device policy; there are {', '.join(_POLICIES)}")
        self._policy = device_policy or "silent"

    def get_synchronous_execution(self) -> bool:
        """Whether eager operations wait for each other; none is eager here.

        Example:
            >>> tf.config.experimental.get_synchronous_execution()
            True
        """
        return self._synchronous

    def set_synchronous_execution(self, enable: bool | None) -> None:
        """Keeps what `get_synchronous_execution` gives."""
        self._synchronous = enable is None or bool(enable)

    def get_log_device_placement(self) -> bool:
        """Whether `set_log_device_placement` asked for it.

        Example:
            >>> tf.debugging.get_log_device_placement()
            False
        """
        return self._log_placement

    def set_log_device_placement(self, enabled: bool) -> None:
        """Keeps what `get_log_device_placement` gives; a session logs if its ConfigProto says so."""
        self._log_placement = bool(enabled)


def _count(num_threads: int) -> int:
    if num_threads < 0:
        raise ValueError(f"a number of threads cannot be {num_threads}; 0 means as many as there are processors")
    return int(num_threads)


#: of this process
process_settings: Final = ProcessSettings()

get_jit = process_settings.get_jit
set_jit = process_settings.set_jit
get_experimental_options = process_settings.get_experimental_options
set_experimental_options = process_settings.set_experimental_options
get_inter_op_parallelism_threads = process_settings.get_inter_op_parallelism_threads
set_inter_op_parallelism_threads = process_settings.set_inter_op_parallelism_threads
get_intra_op_parallelism_threads = process_settings.get_intra_op_parallelism_threads
set_intra_op_parallelism_threads = process_settings.set_intra_op_parallelism_threads
get_device_policy = process_settings.get_device_policy
set_device_policy = process_settings.set_device_policy
get_synchronous_execution = process_settings.get_synchronous_execution
set_synchronous_execution = process_settings.set_synchronous_execution
get_log_device_placement = process_settings.get_log_device_placement
set_log_device_placement = process_settings.set_log_device_placement
