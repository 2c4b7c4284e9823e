"""From a data set to a batch: the partition, samples, columns, labels, loading, padding, neighbours."""

from unweave.data.labels import Data, class_labels, labels_of, require_classes, require_known_labels
from unweave.data.lengths import settle_padding
from unweave.data.loading import Ahead, Order, to_device
from unweave.data.neighbours import adjacency_scores, nearest
from unweave.data.padding import by_length
from unweave.data.partition import EVERY, RETAINED, SUBSETS, Indices, Partition, positions_of
from unweave.data.samples import Batch, Collate, Samples, as_keep_data
from unweave.data.trees import has_one_each, join, map_tensors, shapes, tensors_of

__all__ = [
    "EVERY",
    "RETAINED",
    "SUBSETS",
    "Ahead",
    "Batch",
    "Collate",
    "Data",
    "Indices",
    "Order",
    "Partition",
    "Samples",
    "adjacency_scores",
    "as_keep_data",
    "by_length",
    "class_labels",
    "has_one_each",
    "join",
    "labels_of",
    "map_tensors",
    "nearest",
    "positions_of",
    "require_classes",
    "require_known_labels",
    "settle_padding",
    "shapes",
    "tensors_of",
    "to_device",
]
