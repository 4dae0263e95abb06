"""tf.data.experimental: what gathers statistics of datasets."""

from __future__ import annotations

from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class StatsAggregator:
    """Gathers what the datasets of a pipeline record about their elements.

    `tf.data.experimental.latency_stats` and `bytes_produced_stats` record; the option says where.

    Example:
        >>> aggregator = tf.data.experimental.StatsAggregator()
        >>> options = tf.data.Options()
        >>> options.experimental_stats.aggregator = aggregator
        >>> dataset = tf.data.Dataset.range(3).apply(tf.data.experimental.bytes_produced_stats("bytes"))
        >>> iterator = tf.data.make_initializable_iterator(dataset.with_options(options))
        >>> number = iterator.get_next()
        >>> sess.run(iterator.initializer)
        >>> _ = sess.run(number), sess.run(number)
        >>> found = tf.Summary.FromString(sess.run(aggregator.get_summary()))
        >>> found.value[0].tag, found.value[0].histo.num, found.value[0].histo.sum
        ('bytes', 2.0, 16.0)
    """

    def __init__(self) -> None:
        self._resource: Tensor = raw.StatsAggregatorHandle()

    @property
    def resource(self) -> Tensor:
        """The handle of what gathers."""
        return self._resource

    def get_summary(self) -> Tensor:
        """A string: a serialized `tf.Summary` with a histogram for each name."""
        summary: Tensor = raw.StatsAggregatorSummary(self._resource)
        return summary
