"""Seventy-one training jobs that represent the two suites of the evaluation of GPOEO (Wang et al. 2022).

Seventeen are the tasks of AIBench Training, one each; fifty-four are six kinds of graph networks on nine data sets of
Dwivedi et al. 2020. What the papers leave open is drawn from the seed: a batch size around the usual one, the waits for
data, the host time per kernel, how often a job evaluates. The names do not depend on the seed.

Host times are estimates. An eager framework spends about ten microseconds of host time per kernel; the GPU waits for
that only where its kernels are shorter. Waits for data range from none (in memory) to tens of milliseconds (decoding).

The first functions make the networks of AIBench Training that the catalogue of workloads does not have.
Shapes follow the papers that the suite names, in round numbers: WGAN (Arjovsky et al. 2017) on images of 64×64,
CycleGAN (Zhu et al. 2017) on 256×256, Neural Image Caption (Vinyals et al. 2015), convolutional LSTMs for video (Shi et
al. 2015) and for image compression (Toderici et al. 2017), perspective transformer nets (Yan et al. 2016), spatial
transformers (Jaderberg et al. 2015), ranking distillation (Tang and Wang 2018), and the shared cells of ENAS (Pham et
al. 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from random import Random

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.workloads.convolutional import inception3, resnet
from wattune.workloads.graph import GRAPHS, GraphData, graph_kinds, graph_network
from wattune.workloads.image_layers import Image, ImageLayers
from wattune.workloads.operation import (
    ADAM,
    SGD,
    NetworkOp,
    Optimizer,
    dense,
    gradient_phases,
    inference_phases,
    merged,
    update_phase,
)
from wattune.workloads.recurrent import deepspeech2, look_up, lstm_language_model, lstm_layer, ncf, vocabulary_head
from wattune.workloads.training_run import Loop, Schedule, Wait, one_pass, run_workload, scheduled
from wattune.workloads.transformer import TRANSLATOR, transformer

_Plan = tuple[tuple[int, int, int], ...]
"""Channels, kernel and stride of each convolution."""


def wgan_critic() -> tuple[NetworkOp, ...]:
    """Make the critic of a WGAN for one image of 64×64."""
    net = ImageLayers(Image.square(3, 64))
    return (
        _stack(net, "critic", ((64, 4, 2), (128, 4, 2), (256, 4, 2), (512, 4, 2))).dense("critic/score", 1).complete()
    )


def wgan_generator() -> tuple[NetworkOp, ...]:
    """Make the generator of a WGAN for one image of 64×64."""
    seed = dense("generator/seed", 100, 512 * 16)
    return (seed, *_rising(ImageLayers(Image.square(512, 4)), "generator", (256, 128, 64, 3)).operations)


def cyclegan() -> tuple[NetworkOp, ...]:
    """Make one direction of a CycleGAN for 256×256: down, nine residual blocks, up, and a discriminator."""
    net = _stack(ImageLayers(Image.square(3, 256)), "down", ((64, 7, 1), (128, 3, 2), (256, 3, 2)))
    for block in range(1, 10):
        _stack(net, f"block{block}", ((256, 3, 1), (256, 3, 1))).add(f"block{block}/add")
    _rising(net, "up", (128, 64)).conv("up/last", 3, kernel=7)
    _stack(net.beside(Image.square(3, 256)), "judge", ((64, 4, 2), (128, 4, 2), (256, 4, 2), (512, 4, 1)))
    return net.complete()


def image_caption() -> tuple[NetworkOp, ...]:
    """Make Neural Image Caption: a caption of 20 words for one image."""
    words = lstm_language_model(layers=1, width=512, vocabulary=10_000, steps=20)
    return (*resnet("resnet50"), *(replace(operation, name=f"caption/{operation.name}") for operation in words))


def video_prediction() -> tuple[NetworkOp, ...]:
    """Make two convolutional LSTMs over twenty frames of 64×64."""
    return _recurrent_images(Image.square(64, 64), kernel=5, layers=2, steps=20)


def image_compression() -> tuple[NetworkOp, ...]:
    """Make eight rounds of encoding and decoding of one patch of 32×32."""
    return _recurrent_images(Image.square(256, 16), kernel=3, layers=4, steps=8)


def object_reconstruction() -> tuple[NetworkOp, ...]:
    """Make a solid of 32×32×32 from one picture of 64×64: convolutions, dense layers, convolutions in space."""
    net = _stack(ImageLayers(Image.square(3, 64)), "encoder", ((64, 5, 2), (128, 5, 2), (256, 5, 2)))
    net.dense("dense1", 512).dense("dense2", 512).dense("dense3", 512 * 27)
    # Rows of the solid represent its third dimension.
    _rising(net.beside(Image(256, 24, 24)), "decoder", (96, 32))
    return net.complete()


def summarization() -> tuple[NetworkOp, ...]:
    """Make LSTMs that read an article of 400 words and write a summary of 100."""
    read = [
        look_up("embedding", rows=50_000, width=128, count=500),
        *lstm_layer("reader", inputs=128, width=256, steps=400, directions=2),
    ]
    written = lstm_layer("writer", inputs=128, width=256, steps=100)
    return (*read, *written, *vocabulary_head("head", width=256, vocabulary=50_000, steps=100))


def spatial_transformer() -> tuple[NetworkOp, ...]:
    """Make two small networks: one turns a digit of 28×28 upright, one reads it."""
    turn = _stack(ImageLayers(Image.square(1, 28)), "turn", ((8, 7, 2), (10, 5, 2)))
    read = _stack(ImageLayers(Image.square(1, 28)), "read", ((10, 5, 2), (20, 5, 2)))
    layers = [dense("turn/dense", 90, 32), dense("turn/angles", 32, 6), dense("read/dense", read.image.elements, 50)]
    return (*turn.operations, *layers, *read.operations, dense("read/digit", 50, 10))


def ranking() -> tuple[NetworkOp, ...]:
    """Make look-ups of one user and five places, and a small dense network."""
    tables = [look_up("user", rows=200_000, width=50, count=1), look_up("place", rows=100_000, width=50, count=10)]
    return (*tables, dense("dense1", 300, 200), dense("dense2", 200, 100), dense("head", 100, 1))


def shared_cells() -> tuple[NetworkOp, ...]:
    """Make a recurrent cell of shared weights, as in ENAS: 35 steps of width 1000."""
    return lstm_language_model(layers=1, width=1000, vocabulary=10_000, steps=35)


def _stack(net: ImageLayers, name: str, plan: _Plan) -> ImageLayers:
    """Append convolutions, each with norm and activation."""
    for index, (channels, kernel, stride) in enumerate(plan, 1):
        net.conv_norm_relu(name, channels, kernel=kernel, stride=stride, number=index)
    return net


def _rising(net: ImageLayers, name: str, channels: tuple[int, ...]) -> ImageLayers:
    """Append convolutions that double the side: each is the backward pass of one that halves it."""
    for index, wide in enumerate(channels, 1):
        larger = Image(wide, 2 * net.image.height, 2 * net.image.width)
        halving = net.beside(larger)
        halving.conv(f"{name}/rise{index}", net.image.channels, kernel=4, stride=2, padding=1)
        net.image = larger
        net.norm(f"{name}/norm{index}").relu(f"{name}/relu{index}")
    return net


def _recurrent_images(image: Image, *, kernel: int, layers: int, steps: int) -> tuple[NetworkOp, ...]:
    """Make convolutional LSTMs: at each step a convolution of input and state to four gates, and the cell."""
    net = ImageLayers(image)
    for layer in range(1, layers + 1):
        both = net.beside(replace(image, channels=2 * image.channels))
        both.conv(f"cell{layer}/gates", 4 * image.channels, kernel=kernel).relu(f"cell{layer}/cell")
    return tuple(_repeated(operation, steps) for operation in net.operations)


def _repeated(operation: NetworkOp, steps: int) -> NetworkOp:
    """Repeat the operation at every step; its weights are read every time."""
    return replace(
        operation,
        flops=steps * operation.flops,
        reads=steps * operation.reads,
        writes=steps * operation.writes,
        weights_read=steps * operation.parameters,
        launches=steps * operation.launches,
    )


GENERATION = "aibench/image-generation"
FP16, FP32, TF32 = Pipe.FP16, Pipe.FP32, Pipe.TF32


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """A training task: network, usual batch size, precision, and host times."""

    name: str
    operations: Callable[[], tuple[NetworkOp, ...]]
    batch_size: int
    pipe: Pipe
    optimizer: Optimizer = ADAM
    loading_s: float = 0.0
    """Wait for data before a batch of the usual size."""
    dispatch_s: float = 0.0
    """Host time per kernel that the GPU waits for."""
    micro_steps: tuple[int, ...] = (1,)
    """Choices per step, of which one is drawn."""
    steps: tuple[int, int] = (20, 60)
    """Fewest and most between evaluations."""

    @property
    def network(self) -> str:
        """What the network is called, such as resnet50 or image_caption."""
        made = self.operations
        if not isinstance(made, partial):
            return made.__name__
        first = made.args[0]
        return first if isinstance(first, str) else made.func.__name__


_DETECTION = partial(resnet, "resnet101", image=Image(3, 600, 800))
_DEPTH_FACES = partial(resnet, "resnet50", image=Image.square(4, 112))

TASKS = tuple(
    replace(task, name=f"aibench/{task.name}")
    for task in (
        TrainingTask("image-classification", partial(resnet, "resnet50"), 64, TF32, SGD, 6e-3, micro_steps=(1, 2)),
        TrainingTask("image-generation", wgan_critic, 64, FP32, ADAM, 3e-3, 4e-6),
        TrainingTask("text-to-text", partial(transformer, TRANSLATOR), 64, FP16, ADAM, 1e-3, micro_steps=(1, 4)),
        TrainingTask("image-to-text", image_caption, 32, TF32, ADAM, 12e-3),
        TrainingTask("image-to-image", cyclegan, 1, FP32, ADAM, 4e-3, 2e-6),
        TrainingTask("speech-recognition", deepspeech2, 20, FP16, SGD, 20e-3, micro_steps=(1, 2)),
        TrainingTask("face-embedding", inception3, 32, TF32, SGD, 15e-3),
        TrainingTask("3d-face-recognition", _DEPTH_FACES, 64, FP16, ADAM, 25e-3),
        TrainingTask("object-detection", _DETECTION, 2, TF32, SGD, 25e-3, 6e-6, micro_steps=(1, 4)),
        TrainingTask("recommendation", ncf, 65_536, FP32, ADAM, 1e-3, 5e-6),
        TrainingTask("video-prediction", video_prediction, 16, FP32, ADAM, 8e-3),
        TrainingTask("image-compression", image_compression, 64, TF32, ADAM, 10e-3, 6e-6),
        TrainingTask("3d-object-reconstruction", object_reconstruction, 48, FP32, ADAM, 45e-3),
        TrainingTask("text-summarization", summarization, 16, FP32, ADAM, 2e-3, 8e-6),
        TrainingTask("spatial-transformer", spatial_transformer, 64, FP32, SGD, 5e-3, 12e-6),
        TrainingTask("learning-to-rank", ranking, 4096, FP32, ADAM, 2.5e-3, 10e-6),
        TrainingTask("architecture-search", shared_cells, 64, FP32, ADAM, 0.5e-3, 6e-6, micro_steps=(1, 2)),
    )
)

# Host time per graph and per edge for putting a batch of graphs together (Python objects and copies).
_GRAPH_S, _EDGE_S = 40e-6, 8e-9
# Graph kernels shorter than some ten microseconds wait for the host.
_SHORT_EDGES = 60_000
_SHORT_DISPATCH_S, _LONG_DISPATCH_S = 9e-6, 2e-6


def graph_tasks() -> tuple[TrainingTask, ...]:
    """Make the tasks of six kinds of networks on nine data sets."""
    kinds = [kind for kind in graph_kinds() if kind != "mlp"]
    return tuple(_graph_task(kind, data) for data in GRAPHS.values() for kind in kinds)


def _graph_task(kind: str, data: GraphData) -> TrainingTask:
    edges = data.batch_size * data.edges
    whole = data.batch_size == 1  # one large graph, which stays on the GPU
    return TrainingTask(
        name=f"gnn/{data.name}-{kind}",
        operations=partial(graph_network, kind, data),
        batch_size=data.batch_size,
        pipe=Pipe.FP32,
        loading_s=0.0 if whole else data.batch_size * _GRAPH_S + edges * _EDGE_S,
        dispatch_s=_SHORT_DISPATCH_S if edges < _SHORT_EDGES else _LONG_DISPATCH_S,
        steps=(60, 160),
    )


SIZE = 71
_INTERVALS = 2
# Updates of the critic for one of the generator (Arjovsky et al. 2017, algorithm 1).
_CRITIC_STEPS = 5


def members_named(words: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the jobs whose name or network contains one of the words, or of all without words."""
    networks = {task.name: task.network for task in (*TASKS, *graph_tasks())}
    for word in words:
        if not any(_is_named(word, *both) for both in networks.items()):
            known = [*networks, *dict.fromkeys(networks.values())]
            # A word is compared with the parts of a name, since nobody writes the whole.
            parts = {part: name for name in reversed(known) for part in (name, *name.split("/")[1:])}
            near = dict.fromkeys(parts[part] for part in get_close_matches(word.lower(), parts, n=3, cutoff=0.5))
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known[:3])} …"
            raise InputError(f"no job of the family has {word!r} in its name or network", hint=hint)
    return tuple(
        name for name, network in networks.items() if not words or any(_is_named(word, name, network) for word in words)
    )


def _is_named(word: str, name: str, network: str) -> bool:
    return word.lower() in name or word.lower() in network


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """One training job; its name begins with its suite, `aibench` or `gnn`."""

    name: str
    batch_size: int
    pipe: Pipe
    loop: Loop
    seed: int

    @property
    def step(self) -> Workload:
        """One training step, with waits of mean length."""
        return one_pass(self.loop, "step")

    @property
    def run(self) -> Workload:
        """From one checkpoint to the next, with evaluation, as one long iteration; waits are drawn from the seed."""
        return run_workload(self.loop, seed=self.seed)


def family(*, seed: int = 0) -> tuple[FamilyMember, ...]:
    """Make the seventy-one jobs, in a fixed order."""
    members = []
    for task in (*TASKS, *graph_tasks()):
        random = Random(f"{seed}/{task.name}")
        drawn = _drawn(task, random)
        loop = _loop(drawn, _schedule(drawn, random))
        members.append(FamilyMember(task.name, drawn.batch_size, task.pipe, loop, random.randrange(2**32)))
    return tuple(members)


def _drawn(task: TrainingTask, random: Random) -> TrainingTask:
    """Vary a task: half to twice the usual batch, host times within a factor of about two."""
    factor = random.choice((0.5, 1.0, 1.0, 2.0))
    # A batch of one is one large graph or image, which cannot be halved.
    batch_size = round(task.batch_size * factor) if task.batch_size > 1 else 1
    scale = batch_size / task.batch_size
    return replace(
        task,
        batch_size=batch_size,
        loading_s=task.loading_s * scale * random.lognormvariate(0.0, 0.35),
        dispatch_s=task.dispatch_s * random.lognormvariate(0.0, 0.25),
    )


def _schedule(task: TrainingTask, random: Random) -> Schedule:
    return Schedule(
        micro_steps=random.choice(task.micro_steps),
        steps=random.randint(*task.steps),
        loading=Wait("loading", task.loading_s, random.uniform(0.05, 0.5)) if task.loading_s else None,
        evaluation_batches=random.choice((0, 5, 10, 15)),
        evaluations=random.choice((1, 1, 2)),
        checkpoint=Wait("checkpoint", random.uniform(0.05, 1.0), 0.2) if random.random() < 0.5 else None,
    )


def _loop(task: TrainingTask, schedule: Schedule) -> Loop:
    if task.name == GENERATION:
        return _adversarial(task, schedule)
    return scheduled(
        task.name,
        schedule,
        gradients=_gradients(task),
        update=_dispatched(update_phase(task.operations(), task.optimizer), task),
        evaluating=_phases(inference_phases(task.operations(), batch_size=task.batch_size, pipe=task.pipe), task),
    )


def _adversarial(task: TrainingTask, schedule: Schedule) -> Loop:
    """Make several steps of the critic, then one of the generator through the critic."""
    critic, generator = wgan_critic(), wgan_generator()
    against = replace(task, operations=wgan_critic)
    making = replace(task, operations=lambda: (*generator, *critic))
    loading = (schedule.loading,) if schedule.loading else ()
    update = _dispatched(update_phase(critic, task.optimizer), task)
    critic_steps = Loop("critic step", (*loading, *_gradients(against), update), _CRITIC_STEPS)
    generating = (*_gradients(making), _dispatched(update_phase(generator, task.optimizer), task))
    return Loop(task.name, (Loop("step", (critic_steps, *generating), schedule.steps),))


def _gradients(task: TrainingTask) -> tuple[Phase, ...]:
    return _phases(gradient_phases(task.operations(), batch_size=task.batch_size, pipe=task.pipe), task)


def _phases(phases: tuple[Phase, ...], task: TrainingTask) -> tuple[Phase, ...]:
    return tuple(_dispatched(phase, task) for phase in merged(phases, _INTERVALS))


def _dispatched(phase: Phase, task: TrainingTask) -> Phase:
    """Add the host time of its kernels to a phase."""
    return replace(phase, host_stall_s=phase.launches * task.dispatch_s)
