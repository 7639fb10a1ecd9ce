"""Small files of a log directory, and the names of all of them.

names                        Kafka's names
replace_file                 written whole, by rename
checkpoints                  recovery points, log starts, high watermarks
meta_properties              whose directory it is
producer_snapshot            .snapshot; snapshot_files: those of a log
reaper                       files scheduled for deletion
"""
