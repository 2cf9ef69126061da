import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints what Apache Kafka knows of errors, APIs and feature levels, a line each. */
public class ProtocolFacts {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof org.apache.kafka.common.errors.RetriableException;
            System.out.println("error " + error.code() + " " + error.name() + " " + retriable);
        }
        for (ApiKeys api : ApiKeys.values()) {
            if (!api.hasValidVersion())
                continue;
            StringBuilder headers = new StringBuilder();
            for (short version = api.oldestVersion(); version <= api.latestVersion(); version++)
                headers.append(" ").append(api.requestHeaderVersion(version)).append("/").append(api.responseHeaderVersion(version));
            System.out.println("api " + api.id + " " + api.name + " " + api.oldestVersion() + headers);
        }
        for (MetadataVersion level : MetadataVersion.VERSIONS)
            System.out.println("metadata " + level.featureLevel() + " " + level.version() + " " + level.didMetadataChange()
                + " " + level.registerBrokerRecordVersion() + " " + level.partitionRecordVersion()
                + " " + level.partitionChangeRecordVersion() + " " + level.fetchRequestVersion()
                + " " + level.listOffsetRequestVersion() + defaults(level));
        System.out.println("latest " + MetadataVersion.LATEST_PRODUCTION.featureLevel());
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            StringBuilder levels = new StringBuilder();
            for (FeatureVersion level : feature.featureVersions())
                levels.append(" ").append(new TreeMap<>(level.dependencies()).toString().replace(" ", ""));
            System.out.println("feature " + feature.featureName() + " " + feature.latestProduction() + levels);
        }
    }

    static String defaults(MetadataVersion level) {
        Map<String, Short> levels = new TreeMap<>();
        for (Feature feature : Feature.PRODUCTION_FEATURES)
            levels.put(feature.featureName(), feature.defaultLevel(level));
        return " " + levels.toString().replace(" ", "");
    }
}
