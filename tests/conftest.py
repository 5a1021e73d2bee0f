"""Property tests try the same examples in every run and have no clock: a busy machine must not fail them."""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
