"""The adapters of PyTorch: eager, TorchScript and torch.compile."""
