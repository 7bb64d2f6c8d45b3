"""What a compiled cell gives for data that is not timed, in its worker: the model's own, or seeded inputs."""
