"""Configs of topics and nodes.

changes         IncrementalAlterConfigs
rules           the configs that elections depend on, as they hold for one topic
node_configs    the settings that hold on one node: its file, and the dynamic configs over it
"""
