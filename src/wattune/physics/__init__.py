"""How a GPU spends time and joules, as pure functions of what it is and what it is asked to do."""
