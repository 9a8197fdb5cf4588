import pytest

from wattune.core.errors import WattuneError


@pytest.mark.parametrize(
    "given",
    [repr("x" * 10**6), repr("x y " * 10**5), repr("it's " * 10**5), "x" * 10**6, "x y " * 10**5, "'" * 10**6],
)
def test_an_error_repeats_at_most_200_characters_of_what_was_given(given):
    error = WattuneError(f"there is no workload {given}", hint=f"did you mean {given}?")
    assert len(error.message) <= len("there is no workload ") + 200
    assert error.hint is not None
    assert len(error.hint) <= len("did you mean ?") + 200


def test_a_message_of_our_own_stays_whole():
    listed = ", ".join(f"a-name-of-a-network-{number}" for number in range(20))
    assert WattuneError("there is no such network", hint=f"there are {listed}").hint == f"there are {listed}"
