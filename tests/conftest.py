"""What all tests have in common."""

from hypothesis import HealthCheck, settings

# a busy machine draws examples slowly
settings.register_profile("any machine", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
