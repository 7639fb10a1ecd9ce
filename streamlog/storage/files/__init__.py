"""Small files of a log directory, and the names of all files.

names                        Kafka's names
replace_file                 a file replaced as a whole, by rename
checkpoints                  recovery points, log starts, high watermarks
meta_properties              identity of the directory
reaper                       files scheduled for deletion
"""
