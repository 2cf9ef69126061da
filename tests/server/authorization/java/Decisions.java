import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.ClusterResource;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/** Asks Kafka's StandardAuthorizer what stands on its input, tab by tab, and prints a decision a line. */
public class Decisions {
    record Caller(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 9; }
        public String clientId() { return "c"; }
        public int correlationId() { return 1; }
    }

    record Server(List<Endpoint> endpoints) implements AuthorizerServerInfo {
        public ClusterResource clusterResource() { return new ClusterResource("c"); }
        public int brokerId() { return 0; }
        public Endpoint interBrokerEndpoint() { return endpoints.get(0); }
        public Collection<String> earlyStartListeners() { return List.of(); }
    }

    static Caller caller(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        return new Caller(new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1)), InetAddress.getByName(host));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StandardAuthorizer authorizer = null;
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split("\t");
            switch (w[0]) {
                case "world":
                    Map<String, Object> configs = new HashMap<>();
                    configs.put("super.users", w[1]);
                    configs.put("allow.everyone.if.no.acl.found", w[2]);
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(configs);
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.start(new Server(List.of(new Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 9092))));
                    authorizer.completeInitialLoad();
                    break;
                case "entry":
                    authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(ResourceType.fromCode(Byte.parseByte(w[1])), w[2],
                        PatternType.fromCode(Byte.parseByte(w[3])), w[4], w[5], AclOperation.fromCode(Byte.parseByte(w[6])),
                        AclPermissionType.fromCode(Byte.parseByte(w[7]))));
                    break;
                case "ask":
                    ResourcePattern pattern = new ResourcePattern(ResourceType.fromCode(Byte.parseByte(w[4])), w[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.fromCode(Byte.parseByte(w[3])), pattern, 1, true, true);
                    out.append(authorizer.authorize(caller(w[1], w[2]), List.of(action)).get(0)).append('\n');
                    break;
                default:
                    out.append(authorizer.authorizeByResourceType(caller(w[1], w[2]), AclOperation.fromCode(Byte.parseByte(w[3])),
                        ResourceType.fromCode(Byte.parseByte(w[4])))).append('\n');
            }
        }
        System.out.print(out);
    }
}
