package org.streamlog.examples;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Arguments of the form [--name value ...] argument ... */
final class Options {
  private final Map<String, String> named = new HashMap<>();
  private final List<String> plain = new ArrayList<>();

  Options(String usage, int count, String... arguments) {
    for (int i = 0; i < arguments.length; i++) {
      if (arguments[i].startsWith("--") && i + 1 < arguments.length) {
        named.put(arguments[i].substring(2), arguments[++i]);
      } else {
        plain.add(arguments[i]);
      }
    }
    if (plain.size() != count) {
      System.err.println("Usage: " + usage);
      System.exit(2);
    }
  }

  String servers() {
    return named.getOrDefault("servers", "127.0.0.1:9092");
  }

  /** End after so many records; 0: at Ctrl-C. */
  int count() {
    return Integer.parseInt(named.getOrDefault("count", "0"));
  }

  String get(String name, String otherwise) {
    return named.getOrDefault(name, otherwise);
  }

  String get(int index) {
    return plain.get(index);
  }
}
