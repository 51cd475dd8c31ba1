"""Fused window attention of BolT: windows, the layer, and its kernels in torch and C++."""
