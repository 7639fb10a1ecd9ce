import com.google.protobuf.ByteString;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.streamlog.v1.AdminGrpc;
import org.streamlog.v1.CreateTopicsRequest;
import org.streamlog.v1.EndPosition;
import org.streamlog.v1.NewTopic;
import org.streamlog.v1.OffsetBound;
import org.streamlog.v1.PublishRecord;
import org.streamlog.v1.PublishRequest;
import org.streamlog.v1.RecordsGrpc;
import org.streamlog.v1.StartPosition;
import org.streamlog.v1.SubscribePartitions;
import org.streamlog.v1.SubscribeRequest;

/** Try SERVER TOPIC: creates a topic, writes three records and reads them back. */
public final class Try {
  public static void main(String[] arguments) {
    var topic = arguments[1];
    var channel = Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create()).build();
    var created = AdminGrpc.newBlockingStub(channel).createTopics(
        CreateTopicsRequest.newBuilder().addTopics(NewTopic.newBuilder().setName(topic).setPartitions(1)).build());
    if (created.getResults(0).hasError()) {
      throw new IllegalStateException(created.getResults(0).getError().getMessage());
    }
    var records = RecordsGrpc.newBlockingStub(channel);
    var request = PublishRequest.newBuilder().setTopic(topic);
    Stream.of("one", "two", "three").forEach(value ->
        request.addRecords(PublishRecord.newBuilder().setValue(ByteString.copyFromUtf8(value))));
    records.publish(request.build());
    var reading = SubscribePartitions.newBuilder()
        .setTopic(topic)
        .setStart(StartPosition.newBuilder().setBound(OffsetBound.OFFSET_BOUND_EARLIEST))
        .setEnd(EndPosition.newBuilder().setBound(OffsetBound.OFFSET_BOUND_LATEST));
    List<String> values = new ArrayList<>();
    records.subscribe(SubscribeRequest.newBuilder().addSubscriptions(reading).build()).forEachRemaining(response ->
        response.getPartitionsList().forEach(part ->
            part.getRecordsList().forEach(record -> values.add(record.getValue().toStringUtf8()))));
    System.out.println(String.join(" ", values));
    channel.shutdownNow();
  }
}
