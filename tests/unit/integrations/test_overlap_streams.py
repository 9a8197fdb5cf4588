"""Collectives on a stream of their own, with a stand-in for the streams of CUDA, and what a CPU build refuses."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import torch

from wattune.core.errors import NotSupported
from wattune.integrations.overlap import streams
from wattune.integrations.overlap.streams import GreenStreams, StreamTransport, symmetric_all_reduce
from wattune.integrations.overlap.transport import placeholder


class Stream:
    """Writes down what it is given."""

    def __init__(self, name, log):
        self.name, self._log = name, log

    def wait_stream(self, other):
        self._log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self._log.append(f"{self.name} waits for {event}")

    def record_event(self):
        self._log.append(f"{self.name} records an event")
        return "the collective"


class Result:
    def record_stream(self, stream):
        pass


def test_a_collective_waits_for_its_place_and_the_computation_for_the_collective(monkeypatch):
    log = []
    compute, beside = Stream("compute", log), Stream("beside", log)
    current = [compute]

    @contextmanager
    def within(stream):
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(streams.torch.cuda, "current_stream", lambda: current[-1])
    monkeypatch.setattr(streams.torch.cuda, "stream", within)

    def run(kind, tensor, dim, sms):
        log.append(f"{kind} of {tensor} on {sms} SMs, {current[-1].name}")
        return Result()

    transfer = StreamTransport(run, beside, size=8).start("all_reduce", "x", dim=0, sms=12)
    log.append("operations")
    assert isinstance(transfer.wait(), Result)
    assert log == [
        "beside waits for compute",
        "all_reduce of x on 12 SMs, beside",
        "beside records an event",
        "operations",
        "compute waits for the collective",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a PyTorch without CUDA")
def test_green_contexts_are_refused_where_there_are_none():
    with pytest.raises(NotSupported, match="no green contexts"):
        GreenStreams(None)


def test_each_number_of_sms_has_one_green_context_made_when_it_is_first_needed(monkeypatch):
    made = []

    class Context:
        @staticmethod
        def create(*, num_sms, device_id):
            if num_sms > 100:
                raise RuntimeError("CUDA driver error: invalid resource")
            made.append((num_sms, device_id))
            return Context(num_sms)

        def __init__(self, sms):
            self._sms = sms

        def Stream(self):  # noqa: N802, the name that PyTorch gave it
            return f"stream of {self._sms}"

    contexts = type("", (), {"SUPPORTED": True})
    monkeypatch.setattr(streams.torch.cuda, "green_contexts", contexts, raising=False)
    monkeypatch.setattr(streams.torch.cuda, "GreenContext", Context, raising=False)
    found = GreenStreams("any", device=3)
    assert made == []
    assert [found.of(sms) for sms in (12, 6, None, 12)] == ["stream of 12", "stream of 6", "any", "stream of 12"]
    assert made == [(12, 3), (6, 3)]
    with pytest.raises(NotSupported, match="no green context of 108 SMs"):
        found.of(108)


@pytest.mark.parametrize("multicast", [0, 4096])
def test_symmetric_memory_adds_up_in_a_buffer_where_the_switch_can(monkeypatch, multicast):
    from torch.distributed import _symmetric_memory as symmetric_memory

    groups, made = [], []
    group = type("Group", (), {"group_name": "tp"})()

    class Operations:
        @staticmethod
        def multimem_all_reduce_(buffer, how, name):
            groups.append((how, name))
            buffer.mul_(2)

    def rendezvous(buffer, of):
        made.append((tuple(buffer.shape), of))
        return type("Handle", (), {"multicast_ptr": multicast})

    monkeypatch.setattr(streams.torch.ops, "symm_mem", Operations, raising=False)
    monkeypatch.setattr(symmetric_memory, "empty", torch.empty)
    monkeypatch.setattr(symmetric_memory, "rendezvous", rendezvous)
    run = symmetric_all_reduce(group)
    if not multicast:
        with pytest.raises(NotSupported, match="no switch"):
            run("all_reduce", torch.ones(3), 0, None)
        return
    for _ in range(2):
        assert run("all_reduce", torch.ones(3), 0, 6).tolist() == [2, 2, 2]
    assert made == [((3,), group)]
    assert groups == [("sum", "tp")] * 2


def test_symmetric_memory_carries_all_reduces_only(monkeypatch):
    class Operations:
        multimem_all_reduce_ = None

    monkeypatch.setattr(streams.torch.ops, "symm_mem", Operations, raising=False)
    with pytest.raises(NotSupported, match="all_reduce only, not all_gather"):
        symmetric_all_reduce(None)("all_gather", torch.zeros(2), 0, None)


@pytest.mark.parametrize(
    ("kind", "shape"), [("all_reduce", (4, 6)), ("all_gather", (4, 12)), ("reduce_scatter", (4, 3))]
)
def test_a_collective_that_is_left_out_has_a_result_of_the_right_shape(kind, shape):
    assert placeholder(kind, torch.zeros(4, 6), dim=1, size=2).shape == shape
