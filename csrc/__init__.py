"""The folder of ``pyes_environment.h``, installed as the package ``pyes.include`` for compilers."""
