package org.streamlog.examples;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Attributes;
import io.grpc.EquivalentAddressGroup;
import io.grpc.ManagedChannel;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.InsecureChannelCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.StatusProto;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** Connects to a cluster as docs/clients.md says. gRPC balances over the nodes that are healthy. */
final class Connection {
  private static final Map<String, Object> SERVICE_CONFIG =
      Map.of(
          "loadBalancingConfig", List.of(Map.of("round_robin", Map.of())),
          "healthCheckConfig", Map.of("serviceName", "streamlog.v1.Records"),
          "methodConfig",
              List.of(
                  Map.of(
                      "name",
                          List.of(
                              Map.of("service", "streamlog.v1.Records", "method", "Publish"),
                              Map.of("service", "streamlog.v1.Batches", "method", "InitProducerId"),
                              Map.of("service", "streamlog.v1.Admin"),
                              Map.of("service", "streamlog.v1.Cluster")),
                      "waitForReady", true,
                      "timeout", "30s",
                      "retryPolicy",
                          Map.of(
                              "maxAttempts", 5.0,
                              "initialBackoff", "0.1s",
                              "maxBackoff", "2s",
                              "backoffMultiplier", 2.0,
                              "retryableStatusCodes", List.of("UNAVAILABLE"))),
                  Map.of("name", List.of(Map.of("service", "streamlog.v1.Records")), "waitForReady", true)));

  private static final Set<Status.Code> BROKEN =
      Set.of(Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED, Status.Code.CANCELLED, Status.Code.UNKNOWN, Status.Code.INTERNAL);

  private Connection() {}

  /** Takes the addresses of all nodes, separated by commas. */
  static ManagedChannel connect(String servers) {
    NameResolverRegistry.getDefaultRegistry().register(new Nodes());
    return NettyChannelBuilder.forTarget("streamlog:///" + servers, InsecureChannelCredentials.create())
        .defaultServiceConfig(SERVICE_CONFIG)
        .enableRetry()
        .keepAliveTime(10, TimeUnit.SECONDS)
        .keepAliveTimeout(5, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(true)
        .build();
  }

  /** Addresses in the target, since gRPC for Java has no scheme for a list of them. */
  private static final class Nodes extends NameResolverProvider {
    @Override
    public String getDefaultScheme() {
      return "streamlog";
    }

    @Override
    protected boolean isAvailable() {
      return true;
    }

    @Override
    protected int priority() {
      return 5;
    }

    @Override
    public NameResolver newNameResolver(URI target, NameResolver.Args args) {
      List<EquivalentAddressGroup> nodes = new ArrayList<>();
      for (String address : target.getPath().substring(1).split(",")) {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon);
        Attributes name = Attributes.newBuilder().set(EquivalentAddressGroup.ATTR_AUTHORITY_OVERRIDE, host).build();
        InetSocketAddress node = new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1)));
        nodes.add(new EquivalentAddressGroup(node, name));
      }
      return new NameResolver() {
        @Override
        public String getServiceAuthority() {
          return "streamlog";
        }

        @Override
        public void start(Listener2 listener) {
          listener.onResult(
              ResolutionResult.newBuilder().setAddressesOrError(io.grpc.StatusOr.fromValue(nodes)).build());
        }

        @Override
        public void shutdown() {}
      };
    }
  }

  /** The code of streamlog, or the status of gRPC where the error is not streamlog's. */
  static String reason(StatusRuntimeException error) {
    return detail(error, ErrorInfo.class).map(ErrorInfo::getReason).orElse(error.getStatus().getCode().name());
  }

  /** Whether a call that may be executed twice without harm is worth another attempt. */
  static boolean mayRepeat(StatusRuntimeException error) {
    if (detail(error, ErrorInfo.class).isPresent()) {
      // Also of OUTCOME_UNKNOWN: without RetryInfo another attempt does not help, or does harm.
      return detail(error, RetryInfo.class).isPresent();
    }
    return BROKEN.contains(error.getStatus().getCode()); // a connection broke: what the node did is unknown
  }

  private static <T extends Message> Optional<T> detail(StatusRuntimeException error, Class<T> type) {
    com.google.rpc.Status status = StatusProto.fromThrowable(error);
    if (status != null) {
      for (com.google.protobuf.Any any : status.getDetailsList()) {
        if (any.is(type)) {
          try {
            return Optional.of(any.unpack(type));
          } catch (InvalidProtocolBufferException broken) {
            return Optional.empty();
          }
        }
      }
    }
    return Optional.empty();
  }
}
