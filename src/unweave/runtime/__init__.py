"""Where code runs: device, precision, memory limits, seeds, processes, their communication, and sharded weights.

>>> import torch
>>> device = pick_device("cpu")
>>> resolve_precision("auto", device), parse_bytes("8GB"), processes.count()
('float32', 8000000000, 1)
>>> with own_random_numbers(device):  # the caller's random generators stay as they are
...     seed_everything(0, device)
...     first = torch.rand(1)
>>> is_cut(first), whole(first) is first
(False, True)
"""

from unweave.runtime import exchange, process_memory, processes, sharding
from unweave.runtime.device_memory import free_memory, give_back, limited_to, parse_bytes
from unweave.runtime.devices import pick_device, reading
from unweave.runtime.precision import (
    Precision,
    Resolved,
    autocast,
    channels_last,
    exact_head,
    fast_products,
    resolve_precision,
    use_channels_last,
    use_contiguous,
)
from unweave.runtime.randomness import own_random_numbers, seed_everything, seed_host
from unweave.runtime.sharding import all_cut_like, collected, cut_like, is_cut, load, local, total, whole

__all__ = [
    "Precision",
    "Resolved",
    "all_cut_like",
    "autocast",
    "channels_last",
    "collected",
    "cut_like",
    "exact_head",
    "exchange",
    "fast_products",
    "free_memory",
    "give_back",
    "is_cut",
    "limited_to",
    "load",
    "local",
    "own_random_numbers",
    "parse_bytes",
    "pick_device",
    "process_memory",
    "processes",
    "reading",
    "resolve_precision",
    "seed_everything",
    "seed_host",
    "sharding",
    "total",
    "use_channels_last",
    "use_contiguous",
    "whole",
]
