"""C++ code of models for the CPU: its sources, and how they are compiled and loaded."""
