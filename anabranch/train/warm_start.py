"""Starting variables from an earlier training, also when its vocabulary was another  (§4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from anabranch.core.dtypes import float32
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.platform import logging
from anabranch.frontend.variables.initializers import zeros_initializer
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.io import checkpoint_store
from anabranch.ops import raw
from anabranch.train.checkpoint_utils import at_place_of, init_from_checkpoint, prefix_of, replace_initializer
from anabranch.train.restoring import keys_by_names


class _VocabInfo(NamedTuple):
    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int
    backup_initializer: Callable[..., Any] | None
    axis: int


class VocabInfo(_VocabInfo):
    """The vocabularies of a variable, before and now: what `warm_start` needs to put its rows in order.

    Args:
        new_vocab: path of the vocabulary now: one entry on each line.
        new_vocab_size: how many of its entries are used.
        num_oov_buckets: rows (or columns) after those for entries that are in no vocabulary.
        old_vocab: path of the vocabulary of the checkpoint.
        old_vocab_size: how many of its entries were used; -1: all.
        backup_initializer: makes the values of new entries and of those in no vocabulary; None: zeros.
        axis: 0: the vocabulary is that of the rows (an embedding); 1: of the columns (a layer that predicts classes).

    Raises:
        ValueError: `axis` is neither.
    """

    __slots__ = ()

    def __new__(
        cls,
        new_vocab: str,
        new_vocab_size: int,
        num_oov_buckets: int,
        old_vocab: str,
        old_vocab_size: int = -1,
        backup_initializer: Callable[..., Any] | None = None,
        axis: int = 0,
    ) -> Self:
        if axis not in (0, 1):
            raise ValueError(f"The only supported values for the axis argument are 0 and 1.  Provided axis: {axis}")
        return super().__new__(
            cls, new_vocab, new_vocab_size, num_oov_buckets, old_vocab, old_vocab_size, backup_initializer, axis
        )


def warm_start(
    ckpt_to_initialize_from: str,
    vars_to_warm_start: str | Sequence[str] | Sequence[Variable] | None = ".*",
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None,
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
) -> None:
    """Lets the initializers of variables take their values from a checkpoint. Call it before the session initializes.

    Args:
        ckpt_to_initialize_from: prefix of a checkpoint, or a directory, of which the latest is taken.
        vars_to_warm_start: which variables: a regular expression that the beginnings of names of trainable variables
            are matched with; a list of such expressions, matched with all global variables (so that optimizers' slots
            can be named); a list of variables; or None: only trainable ones in `var_name_to_vocab_info`.
        var_name_to_vocab_info: name of a variable (of the whole, where it is partitioned) -> `VocabInfo`. Such a
            variable is a float32 matrix, partitioned along its rows if at all.
        var_name_to_prev_var_name: name of a variable -> its name in the checkpoint, where that is another.

    Raises:
        ValueError: a variable that is named is none of those to start; or as `init_from_checkpoint`.
        TypeError: a variable with a vocabulary is not of float32.
        NotFoundError: there is no such checkpoint.
    """
    logging.info("Warm-starting from: %s", ckpt_to_initialize_from)
    prefix = prefix_of(ckpt_to_initialize_from)
    chosen = _by_full_name(_chosen(vars_to_warm_start))
    vocabularies, earlier = var_name_to_vocab_info or {}, var_name_to_prev_var_name or {}
    _check_used("var_name_to_prev_var_name", earlier, chosen)
    _check_used("var_name_to_vocab_info", vocabularies, chosen)
    with checkpoint_store.open_checkpoint(prefix) as reader:
        present, keys = set(reader.names()), keys_by_names(reader)
    as_they_are = {}
    for name, parts in chosen.items():
        stored = earlier.get(name, name)
        if stored not in present:  # by the name that a checkpoint of objects has for the variable
            stored = keys.get(stored, stored)
        if name in vocabularies:
            _start_with_vocabulary(parts, prefix, stored, vocabularies[name])
        elif vars_to_warm_start:
            as_they_are[stored] = parts
    init_from_checkpoint(prefix, as_they_are)
    logging.info("Warm-started %d variables.", len(as_they_are) + len(vocabularies))


# ---------------------------------------------------------------------- which variables
def _chosen(which: str | Sequence[str] | Sequence[Variable] | None) -> Iterable[Variable]:
    graph = get_default_graph()
    if which is None or isinstance(which, str):
        logging.info("Warm-starting variables only in TRAINABLE_VARIABLES.")
        return list(graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, which))
    if not isinstance(which, list):
        raise ValueError(f"`vars_to_warm_start` must be a `list` or `str`.  Given type is {type(which)}")
    if all(isinstance(item, str) for item in which):
        variables = [v for scope in which for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope)]
        return list(dict.fromkeys(variables))
    if all(isinstance(item, Variable) for item in which):
        return which
    raise ValueError(
        "If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`.  Given types are "
        f"{[type(item) for item in which]}"
    )


def _by_full_name(variables: Iterable[Variable]) -> dict[str, list[Variable]]:
    """The variables by name; the parts of a partitioned one under the name of the whole."""
    by_name: dict[str, list[Variable]] = {}
    for variable in variables:
        info = variable._get_save_slice_info()
        whole = None if info is None else info.full_name
        by_name.setdefault(whole or variable._shared_name, []).append(variable)
    return by_name


def _check_used(what: str, named: Iterable[str], chosen: Iterable[str]) -> None:
    unused = sorted(set(named) - set(chosen))
    if unused:
        raise ValueError(
            f"You provided the following variables in {what} that were not used: {unused}.  Perhaps you misspelled "
            f"them?  Here is the list of viable variable names: {sorted(chosen)}"
        )


# ---------------------------------------------------------------------- with another vocabulary
def _start_with_vocabulary(parts: list[Variable], prefix: str, stored: str, vocabulary: VocabInfo) -> None:
    for part in parts:
        if part.dtype is not float32:
            raise TypeError(f"Currently, only float32 is supported. {part.name} has dtype: {part.dtype.name}")
        if part.shape.ndims != 2:
            raise ValueError(f"a variable with a vocabulary must be a matrix, but {part.name} has shape {part.shape}")
    rows = sum(int(part.shape[0]) for part in parts)
    for part in parts:
        with at_place_of(part):
            value = _remapped(part, prefix, stored, vocabulary, rows)
        replace_initializer(part, value)


def _remapped(part: Variable, prefix: str, stored: str, vocabulary: VocabInfo, all_rows: int) -> Tensor:
    """The first value of a variable, or of some rows of one that is partitioned.

    Entries in no vocabulary come last, hence in the last parts.
    """
    info = part._get_save_slice_info()
    offset = 0 if info is None else int(info.var_offset[0])
    rows, columns = (int(size) for size in part.shape)
    by_rows = vocabulary.axis == 0
    known_rows = vocabulary.new_vocab_size if by_rows else all_rows
    known_columns = columns if by_rows else vocabulary.new_vocab_size
    _check_size(part, vocabulary, (all_rows, columns), (known_rows, known_columns))
    loaded_rows = min(rows, max(0, known_rows - offset))
    make = vocabulary.backup_initializer or zeros_initializer()
    if loaded_rows == 0:
        return _made(make, [rows, columns])
    value = _loaded(prefix, stored, vocabulary, offset, (loaded_rows, known_columns), make)
    if rows > loaded_rows:
        value = concat([value, _made(make, [rows - loaded_rows, known_columns])], 0)
    if columns > known_columns:
        value = concat([value, _made(make, [rows, columns - known_columns])], 1)
    return value


def _check_size(part: Variable, vocabulary: VocabInfo, shape: tuple[int, int], known: tuple[int, int]) -> None:
    wanted = known[vocabulary.axis] + vocabulary.num_oov_buckets
    if shape[vocabulary.axis] != wanted:
        raise ValueError(
            f"{part.name}: new_vocab_size ({vocabulary.new_vocab_size}) + num_oov_buckets "
            f"({vocabulary.num_oov_buckets}) = {wanted}, but the variable has {shape[vocabulary.axis]} "
            f"{('rows', 'columns')[vocabulary.axis]}"
        )


def _loaded(
    prefix: str, stored: str, vocabulary: VocabInfo, offset: int, shape: tuple[int, int], make: Callable[..., Any]
) -> Tensor:
    """Rows of the stored matrix in the order of the new vocabulary; what the checkpoint lacks is newly made."""
    rows, columns = shape
    by_rows = vocabulary.axis == 0
    remapping, present = raw.GenerateVocabRemapping(
        vocabulary.new_vocab,
        vocabulary.old_vocab,
        new_vocab_offset=offset if by_rows else 0,
        num_new_vocab=rows if by_rows else columns,
        old_vocab_size=vocabulary.old_vocab_size,
    )
    missing = (rows - present) * columns if by_rows else rows * (columns - present)
    own_rows = convert_to_tensor(range(offset, offset + rows), dtype="int64")
    loaded: Tensor = raw.LoadAndRemapMatrix(
        prefix,
        stored,
        row_remapping=remapping if by_rows else own_rows,
        col_remapping=convert_to_tensor([], dtype="int64") if by_rows else remapping,
        initializing_values=_made(make, [missing, 1]),
        num_rows=rows,
        num_cols=columns,
    )
    return loaded


def _made(make: Callable[..., Any], shape: list[Any]) -> Tensor:
    return convert_to_tensor(make(shape), dtype=float32)
