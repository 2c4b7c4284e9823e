"""From a data set to batches: the partition, samples, columns, labels, loading, padding and neighbours.

>>> import torch
>>> inputs, labels = torch.arange(12.0).view(6, 2), torch.tensor([0, 0, 0, 1, 1, 1])
>>> partition = Partition((inputs, labels), forget=[0], adjacent=[1, 2], remote=[3, 4, 5])
>>> rows = torch.as_tensor(partition["forget"])
>>> labels_of((inputs[rows], labels[rows]))
tensor([0])
>>> nearest(inputs[:1], inputs[1:], k=1)  # squared distances, and positions
(tensor([[8.]]), tensor([[0]]))
"""

from unweave.data.image_files import open_image
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
from unweave.data.stored import Stored
from unweave.data.texts import (
    CHAT,
    NO_LABEL,
    PLAIN,
    PaddingCollator,
    answers,
    packed,
    require_template,
    require_texts,
    require_tokenizer,
    token_pairs,
)
from unweave.data.trees import form_of, join, map_tensors, shapes, tensors_of, to_device

__all__ = [
    "CHAT",
    "EVERY",
    "NO_LABEL",
    "PLAIN",
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
    "PaddingCollator",
    "Partition",
    "Samples",
    "Stored",
    "adjacency_scores",
    "answers",
    "as_groups",
    "as_keep_data",
    "by_length",
    "class_labels",
    "form_of",
    "join",
    "labels_of",
    "map_tensors",
    "may_cut",
    "nearest",
    "open_image",
    "packed",
    "plain_labels",
    "positions_of",
    "require_classes",
    "require_known_labels",
    "require_template",
    "require_texts",
    "require_tokenizer",
    "shapes",
    "tensors_of",
    "to_device",
    "token_pairs",
]
