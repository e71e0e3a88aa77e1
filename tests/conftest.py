"""What holds for every test here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# An example that took long says that the machine is busy, not that the code is wrong.
settings.register_profile("musebench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("musebench")
