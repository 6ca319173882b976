"""Checks on a real board: `python -m tests.gpu.check` on a machine with an H200-class GPU.

It needs this package, the NVIDIA driver and nothing else; with `--out FOLDER`, and where vLLM is
installed, an engine with random weights is measured end to end. At most 5 minutes. The tests here
need no GPU.
"""
