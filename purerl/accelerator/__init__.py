"""The same mathematics in forms that an accelerator runs in few kernels.

On an accelerator small networks take the time of kernels that follow one another. What
is here replaces a part of an update where programs are traced for one; up to rounding
the numbers are the same, and tests hold both forms against each other.
"""
