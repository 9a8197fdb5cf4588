"""Probabilities by finite sums, against SciPy's."""

import numpy as np
import pytest
from scipy.fft import next_fast_len
from scipy.special import chdtrc, fdtrc

from wattune.signals.chance import ratio_chance, sum_chance
from wattune.signals.grid import fast_length


@pytest.mark.parametrize("freedom", [2.0, 2.2, 3.3, 5.5, 12.1, 33.0, 110.0, 701.3])
def test_the_chance_of_a_ratio_is_that_of_the_f_distribution(freedom):
    ratio = np.array([1e-6, 0.5, 1.0, 1.7, 4.0])
    expected = fdtrc(freedom, 2 * freedom, ratio)
    assert np.log(ratio_chance(freedom, ratio) + 1e-30) == pytest.approx(np.log(expected + 1e-30), abs=0.05)


@pytest.mark.parametrize("terms", [1, 2, 4, 12, 60])
@pytest.mark.parametrize("value", [0.0, 0.5, 20.0, 300.0, 5000.0])
def test_the_chance_of_a_sum_is_that_of_chi_squared(terms, value):
    assert sum_chance(terms, value) == pytest.approx(float(chdtrc(2 * terms, value)), rel=1e-9, abs=1e-300)


def test_fast_lengths_have_small_factors_only():
    for least in (1, 2, 7, 97, 1000, 4097, 65537, 120001):
        length = fast_length(least)
        assert length == next_fast_len(length, real=True)
        assert least <= length < 1.1 * least + 2
