"""From a data set to a batch: the partition, samples, columns, labels, loading, padding, neighbours."""

from unweave.data.labels import (
    Data,
    as_groups,
    class_labels,
    labels_of,
    plain_labels,
    require_classes,
    require_known_labels,
)
from unweave.data.loading import Ahead, Order
from unweave.data.neighbours import adjacency_scores, nearest
from unweave.data.padding import by_length, may_cut
from unweave.data.partition import EVERY, RETAINED, SUBSETS, Indices, Partition, positions_of
from unweave.data.samples import Batch, Check, Collate, KeepData, Samples, as_keep_data
from unweave.data.trees import has_one_each, join, map_tensors, shapes, tensors_of, to_device

__all__ = [
    "EVERY",
    "RETAINED",
    "SUBSETS",
    "Ahead",
    "Batch",
    "Check",
    "Collate",
    "Data",
    "Indices",
    "KeepData",
    "Order",
    "Partition",
    "Samples",
    "adjacency_scores",
    "as_groups",
    "as_keep_data",
    "by_length",
    "class_labels",
    "has_one_each",
    "join",
    "labels_of",
    "map_tensors",
    "may_cut",
    "nearest",
    "plain_labels",
    "positions_of",
    "require_classes",
    "require_known_labels",
    "shapes",
    "tensors_of",
    "to_device",
]
