"""One launch: a worker process per compiler, its clock, the order of visits, and what surrounds them."""
