"""The clocks of this process, taken before code of users is imported, which could put others in their place.

Workers import this module first of all. Whatever times something, in the package, takes its clock from here.
"""

from time import perf_counter as seconds
from time import perf_counter_ns as nanoseconds
from time import process_time_ns as cpu_nanoseconds

__all__ = ["cpu_nanoseconds", "nanoseconds", "seconds"]
