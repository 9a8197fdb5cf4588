"""Made-up tables of recurring jobs, in the form of the Zeus trace."""

from math import ceil

TRAIN = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n"
POWER = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
SIZES = (16, 32, 64, 128, 256)
LIMITS_W = (125, 150, 175, 250)
NEEDED = {16: 14, 32: 9, 64: 8, 128: 10, 256: 30}
"""Epochs to the target: U-shaped, with a best at 64 in epochs and at 128 in cost."""


def train_table(*, dataset="toy", runs=3, spread=1, never=()):
    """Trainings that reach 0.2, 0.4 and 0.6 on the way, and 0.8 never."""
    lines = [TRAIN]
    for size in SIZES:
        for run in range(runs):
            needed = NEEDED[size] + spread * run
            epochs = [ceil(needed * share) for share in (0.2, 0.5, 1.0)]
            if size in never:
                epochs[-1] = "nan"
            for metric, epoch in zip((0.2, 0.4, 0.6, 0.8), [*epochs, ""], strict=True):
                lines.append(f"{dataset},net,{size},adam,1e-3,{run},{metric},{epoch}\n")
    return "".join(lines)


def power_table(*, dataset="toy", sizes=SIZES, limits_w=LIMITS_W, missing=()):
    """Epochs with an overhead per iteration; a job that wants some 180 W slows down below that."""
    lines = [POWER]
    for size in sizes:
        for limit_w in limits_w:
            if (size, limit_w) in missing:
                continue
            slower = max(1.0, 180 / limit_w) ** 0.6
            time_s = (60 + 3000 / size) * slower
            lines.append(f"{dataset},net,{size},adam,{limit_w},{time_s},{min(limit_w, 180)}\n")
    return "".join(lines)


def write_tables(folder, *, gpus=("p100",), **train):
    """The folder, with a table of trainings and one of power for each GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary_train.csv").write_text(train_table(**train))
    for place, gpu in enumerate(gpus):
        limits_w = tuple(limit_w + 10 * place for limit_w in LIMITS_W)
        text = power_table(dataset=train.get("dataset", "toy"), limits_w=limits_w, missing={(256, 125)})
        (folder / f"summary_power_{gpu}.csv").write_text(text)
    return folder
