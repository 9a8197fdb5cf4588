"""Energy of a training run, for callbacks of trainers and for loops of one's own: measured, tuned, logged, stored."""

from wattune.integrations.training.energy import TrainingEnergy as TrainingEnergy
