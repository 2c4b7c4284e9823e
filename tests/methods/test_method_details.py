"""What a method does in its later steps: schedules, decays, fading weights, and streams that begin again."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.tensors import same, weights
from unweave import Callback
from unweave.engine import Workbench, run_phases
from unweave.methods import Descent, DescentSettings, find_method
from unweave.tasks import OwnLoss

CPU = torch.device("cpu")
PLAIN = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "normalisation": "eval"}


def begun(name, values, problem, **more):
    """Return the last phase of a method, ready for its first step, on a model of its own."""
    model, split = problem
    bench = Workbench(copy.deepcopy(model), split, device=CPU, **more)
    phases = find_method(name).configure(values).phases()
    for phase in phases:
        phase.prepare(bench)
        phase.begin()
        if phase is not phases[-1]:
            for number in range(phase.steps):
                phase.step(number)
    return phases[-1]


# Descent


def step_sizes(split, schedule, steps):
    """Return the size of every step of a descent: the loss is the bias, whose gradient is 1."""
    model, found = nn.Linear(5, 1).double(), []
    settings = DescentSettings(**PLAIN, schedule=schedule, learning_rate=2.0, epochs=steps, batch_size=60)
    bench = Workbench(model, split, device=CPU, task=OwnLoss(lambda model, batch: model(batch[0])[:, 0]))
    before = model.bias.item()

    class Note(Callback):
        def step(self, phase, number):
            nonlocal before
            found.append(before - model.bias.item())
            before = model.bias.item()
            return {}

    run_phases(bench, [Descent(settings, subsets=("remote",))], callbacks=[Note()])
    return found


def test_every_schedule_of_descent(problem):
    _, split = problem
    assert step_sizes(split, "constant", 10) == pytest.approx([2.0] * 10)
    half_a_wave = [1 + math.cos(math.pi * step / 36) for step in range(36)]
    assert step_sizes(split, "cosine", 36) == pytest.approx(half_a_wave)
    warm = step_sizes(split, "warm-up", 40)  # a tenth of the run are 4 steps
    assert 0 < warm[0] < 0.05
    assert warm[:4] == pytest.approx([warm[0] + (2.0 - warm[0]) * step / 4 for step in range(4)]), "a straight line"
    assert warm[4:] == pytest.approx(half_a_wave)


# ℓ1-sparse


def test_every_epoch_of_l1_sparse_has_its_own_penalty(problem):
    """Without a loss, a step lowers every weight by the step size times the penalty of this epoch."""
    values = PLAIN | {"sparsity": 0.5, "learning_rate": 1e-4, "epochs": 5, "plain_epochs": 1, "batch_size": 26}
    phase = begun("l1-sparse", values, problem, task=OwnLoss(lambda model, batch: 0 * model(batch[0]).sum(1)))
    assert phase.steps == 10
    for number in range(phase.steps):
        before = weights(phase.bench.model)
        phase.step(number)
        share = (1, 3 / 4, 2 / 4, 1 / 4, 0)[number // 2]
        expected = [weight - 1e-4 * 0.5 * share * weight.sign() for weight in before]
        torch.testing.assert_close(weights(phase.bench.model), expected, rtol=0, atol=1e-12)


# SCRUB


def test_every_step_of_scrub_is_that_of_its_equations(problem):
    """T² multiplies the divergence on both kinds of data, and the step size decays from epoch to epoch."""
    teacher, split = problem
    values = PLAIN | {"learning_rate": 0.1, "epochs": 2, "forget_epochs": 2, "batch_size": 60, "forget_batch": 60}
    values |= {"temperature": 3.0, "loss_weight": 0.7, "teacher_weight": 0.4, "epoch_decay": 0.25}
    phase = begun("scrub", values, problem)
    student, (inputs, labels) = phase.bench.model, split.samples.dataset.data
    with torch.no_grad():
        for parameter in student.parameters():  # at the teacher itself the divergence has no gradient
            parameter.add_(0.3 * torch.randn_like(parameter))
    for number, (epoch, rows) in enumerate([(0, range(8)), (0, range(8, 60)), (1, range(8)), (1, range(8, 60))]):
        told, heard = (model(inputs[rows]) for model in (teacher, student))
        chances = (told.detach() / 3).softmax(1)
        divergence = 9 * (chances * (chances.log() - (heard / 3).log_softmax(1))).sum(1).mean()
        kept = 0.7 * functional.cross_entropy(heard, labels[rows]) + 0.4 * divergence
        objective = -divergence if rows == range(8) else kept
        gradient = torch.autograd.grad(objective, list(student.parameters()))
        rate = 0.1 * 0.25**epoch
        expected = [p.detach() - rate * g for p, g in zip(student.parameters(), gradient, strict=True)]
        phase.step(number)
        torch.testing.assert_close(weights(student), expected)


# SalUn


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_weights_that_salun_holds_gather_no_momentum(problem, optimizer):
    """Weight decay would give them momentum."""
    values = {"optimizer": optimizer, "momentum": 0.9 if optimizer == "sgd" else 0.0, "weight_decay": 0.1}
    phase = begun("salun", values | {"learning_rate": 1e-2, "saliency": 0.3, "batch_size": 30}, problem)
    for number in range(3):
        phase.step(number)
    held = torch.cat([~mask.flatten() for mask in phase.masks])
    for name in ("momentum_buffer",) if optimizer == "sgd" else ("exp_avg", "exp_avg_sq"):
        found = torch.cat([phase.optimizer.state[p][name].flatten() for p in phase.bench.parameters])
        assert (found[held] == 0).all()
        assert (found[~held] != 0).all()


# GDR


def test_gdr_asks_its_bank_from_the_second_epoch_on(problem):
    """An earlier, opposite gradient changes no step of the first epoch and every later step."""
    values = PLAIN | {"learning_rate": 0.1, "epochs": 2, "batch_size": 4, "sharpness": 1.0, "tolerance": 5.0}

    def stepped(number, bank):
        phase = begun("gdr", values, problem)
        assert phase.per_epoch == 2
        phase.bank = bank
        phase.step(number)
        return weights(phase.bench.model), phase.bank[-1]

    for number in range(4):
        alone, gradient = stepped(number, [])
        beside, _ = stepped(number, [-gradient])
        assert same(alone, beside) == (number < 2)


# MUNBa


@pytest.mark.parametrize("pairing", ["once", "cycle"])
def test_munba_takes_the_forget_data_again_and_again_with_new_labels(problem, pairing):
    values = {"pairing": pairing, "forget_batch": 4, "batch_size": 13, "epochs": 2, "learning_rate": 1e-3}
    phase, met = begun("munba", values, problem), []

    def relabelled(batch, turn, given=phase.relabelled):
        met.append(given(batch, turn))
        return met[-1]

    phase.relabelled = relabelled
    for number in range(phase.steps):
        phase.step(number)
    passes = [met[place : place + 2] for place in range(0, len(met), 2)]
    assert len(passes) == {"once": 2, "cycle": 4}[pairing]
    rows = [[row for batch in batches for row in batch.rows.tolist()] for batches in passes]
    assert all(sorted(found) == list(range(8)) for found in rows), "every sample once in every pass"
    drawn = {tuple(label for batch in batches for label in batch.labels.tolist()) for batches in passes}
    assert len(drawn) == len(passes), "the labels of every pass are others"
