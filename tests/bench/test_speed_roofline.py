"""What a step needs is counted right, so that its floors are floors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from bench import packed, roofline
from unweave.lab.study import Packing


def convolutional():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))


def attention():
    layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, batch_first=True, dropout=0.0)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(16 * 7, 5))


@pytest.mark.parametrize(("make", "inputs"), [(convolutional, (6, 3, 8, 8)), (attention, (6, 7, 16))])
def test_operations_are_those_that_torch_counts(make, inputs):
    torch.manual_seed(0)
    model, values = make(), torch.randn(inputs)

    def step():
        functional.cross_entropy(model(values), torch.arange(6) % 5).backward()

    with FlopCounterMode(display=False) as counter:
        step()
    found = roofline.counted(step)
    assert found["operations"] == counter.get_total_flops() > 0


def test_attention_with_few_heads_of_keys_counts_as_with_all():
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    queries, keys = (torch.empty(2, heads, 16, 8, device="meta") for heads in (6, 2))
    few, every = (
        flop_registry[attention](*roofline._with_all_heads(attention, (queries, some, some)), out_val=queries)
        for some in (keys, queries)
    )
    assert few == every > 0


def test_bytes_are_those_of_products_and_of_the_optimiser_once_each():
    weight = torch.zeros(3, 2, requires_grad=True)
    values = torch.ones(5, 3)
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=True)

    def step():
        optimizer.zero_grad()
        (torch.relu(values @ weight) + 1).sum().backward()  # what is done element by element does not count
        optimizer.step()

    forward, backward = 15 + 6 + 10, 15 + 10 + 6  # values, weight, results; values, their gradient, the weight's
    optimising = 6 + 6 + 6  # the weight and its gradient are read, the weight is written
    assert roofline.counted(step)["bytes"] == 4 * (forward + backward + optimising)


def test_what_all_trials_would_take_leaves_out_failed_ones():
    from types import SimpleNamespace as Some

    tried = [Some(method="ft", seconds=s, error=e) for s, e in ((2.0, ""), (4.0, ""), (90.0, "out of memory"))]
    found = packed.whole(tried, ["ft", "ga"], trials=10, workers=2)
    assert found["methods"] == {"ft": {"finished": 2, "mean_seconds": 3.0}}
    assert found["methods_without_a_finished_trial"] == ["ga"]
    assert found["seconds_of_all_trials"] == 15.0
    assert packed.rates(Packing(1, {1: 10.0}, ""))[0]["of_the_ideal"] == 1.0
