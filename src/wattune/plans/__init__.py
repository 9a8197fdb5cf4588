"""Plans and what they are made from, for several levels: work graphs, schedules, stage profiles, plan files."""
