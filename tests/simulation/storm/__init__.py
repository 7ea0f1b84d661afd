"""Many processes at once on one pipeline, on a store that is never well, and a plain count of what
had to come out.

Drivers take over from each other, are killed and stopped in the middle of a commit, while ``gc``,
the plugin's reset and ``verify`` run all the time beside them. On S3 a proxy refuses, drops, delays
and repeats requests. Nothing is simulated: the files, the server, the processes and the signals are
real. In the end every commit that a driver was told of has to be there once, with its state and its
output, and every file that a retained checkpoint names.

    python -m tests.simulation.storm local --commits 1000 --seed 7
    python -m tests.simulation.storm s3 --seconds 300
"""
