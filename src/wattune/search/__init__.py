"""What to try next, given what was tried: pure, frozen searchers whose memory is the history they are given."""
