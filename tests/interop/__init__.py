"""streamlog beside a real Kafka: its broker writes what we read, its tools read what we write.

Needs Java 17 or newer and Maven; `make interop` runs it. `real_kafka` starts and stops the processes, `workload`
says what they are given to do, `conftest` makes the two data directories (a clean stop, a kill -9) that the tests
share.
"""
