"""The stand-in for nvidia-smi."""

import os
from dataclasses import replace

import pytest

from emulated import plain_gpu, plain_load
from wattune.emulator.node import Privilege
from wattune.emulator.smi import ALIASES, GPU_FIELDS, main


@pytest.fixture
def smi(emulated_node, capsys):
    """A function that runs the stand-in and gives its exit code and lines, over two plain GPUs."""
    node = emulated_node(plain_gpu(), plain_gpu(index=1))

    def run(*arguments):
        code = main(arguments)
        return code, capsys.readouterr().out.splitlines()

    run.node = node
    return run


def test_the_list(smi):
    assert smi("-L") == (
        0,
        [
            "GPU 0: Plain (simulated) (UUID: GPU-00000000-0000-0000-0000-000000000000)",
            "GPU 1: Plain (simulated) (UUID: GPU-00000000-0000-0000-0000-000000000001)",
        ],
    )


def test_csv_with_and_without_header_and_units(smi):
    query = "--query-gpu=index,name,power.draw,fan.speed,clocks.sm"
    assert smi(query, "--format=csv") == (
        0,
        [
            "index, name, power.draw [W], fan.speed [%], clocks.sm [MHz]",
            "0, Plain (simulated), 20.00 W, [N/A], 500 MHz",
            "1, Plain (simulated), 20.00 W, [N/A], 500 MHz",
        ],
    )
    assert smi(query, "--format=csv,noheader,nounits", "-i", "1") == (0, ["1, Plain (simulated), 20.00, [N/A], 500"])


def test_every_field_can_be_asked_for(smi):
    names = [*GPU_FIELDS, *ALIASES]
    code, (line,) = smi(f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i", "0")
    assert code == 0
    assert len(line.split(", ")) == len(names)


def test_processes(smi):
    smi.node.play(0, plain_load(plain_gpu()), memory_bytes=3 << 30)
    code, lines = smi("--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")
    assert (code, lines) == (0, [f"{os.getpid()}, 3072 MiB, GPU-00000000-0000-0000-0000-000000000000"])


def test_the_overview_contains_the_word_simulated(smi):
    smi.node.join(1, memory_bytes=1 << 30)
    code, lines = smi()
    assert code == 0
    assert "simulated" in lines[0]
    assert any(f"GPU 1  pid {os.getpid()}" in line for line in lines)


def test_the_overview_shows_a_lost_gpu_as_such(smi):
    smi.node.lose(1)
    code, lines = smi()
    assert (code, lines) == (15, ["GPU is lost (simulated GPU)"])
    assert smi("-i", "0", "--query-gpu=index", "--format=csv,noheader") == (0, ["0"])


def test_setting_and_resetting(smi):
    node = smi.node
    assert smi("-i", "0", "-pl", "150") == (0, ["GPU 00000000:01:00.0 (simulated): power limit set to 150.00 W"])
    assert smi("-lgc", "500,1000")[0] == 0
    assert smi("-lmc", "1000")[0] == 0
    assert smi("-pm", "1")[0] == 0
    assert (node.setting(0).power_limit_w, node.setting(1).power_limit_w) == (150, 300)
    assert (node.setting(1).sm_mhz, node.setting(1).mem_mhz) == (1000, 1000)
    assert node.persistence(0)
    assert smi("-rgc", "-rmc")[0] == 0
    assert node.setting(1).sm_mhz is node.setting(1).mem_mhz is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-pl", "20"), "20.00 W is not a power limit between 100.00 and 300.00 W"),
        (("-lgc", "fast"), "'fast' is not MIN,MAX in MHz"),
        (("--query-gpu=colour",), 'Field "colour" is not a valid field to query.'),
        (("--query-compute-apps=colour",), 'Field "colour" is not a valid field to query.'),
        (("--query-gpu=index", "--format=xml"), "--format=xml is not offered; csv is"),
        (("-i", "7"), "No devices were found"),
        (("-i", "GPU-7"), "No devices were found"),
    ],
)
def test_wrong_usage(smi, arguments, complaint):
    assert smi(*arguments) == (2, [complaint])


def test_help(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "simulated" in capsys.readouterr().out


def test_without_privilege(emulated_node, capsys):
    emulated_node(plain_gpu(), privilege=Privilege.DENIED)
    assert main(["-pl", "150"]) == 4
    assert capsys.readouterr().out == "Insufficient Permissions (simulated GPU)\n"


def test_a_gpu_without_limits_prints_not_available(emulated_node, capsys):
    gpu = plain_gpu()
    emulated_node(replace(gpu, spec=replace(gpu.spec, power_limits=None)))
    assert main(["--query-gpu=power.limit,power.min_limit,power.draw.average", "--format=csv,noheader"]) == 0
    assert capsys.readouterr().out == "[N/A], [N/A], [N/A]\n"
