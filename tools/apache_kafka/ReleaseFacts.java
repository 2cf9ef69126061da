import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Prints what a release of Apache Kafka from 2.1 on says of its APIs, errors, configurations and levels, a line each. */
public class ReleaseFacts {
    public static void main(String[] args) throws Exception {
        for (ApiKeys api : ApiKeys.values())
            apis(api);
        for (Errors error : Errors.values())
            System.out.println("error " + error.code() + " " + error.name() + " " + error.message());
        configs("broker", configDef("org.apache.kafka.server.config.AbstractKafkaConfig", "CONFIG_DEF", "kafka.server.KafkaConfig$", "configDef"));
        configs("topic", configDef("org.apache.kafka.storage.internals.log.LogConfig", "CONFIG", "kafka.log.LogConfig$", "configDef"));
        configs("group", configDef("org.apache.kafka.coordinator.group.GroupConfig", "CONFIG", "org.apache.kafka.coordinator.group.GroupConfig", "CONFIG_DEF"));
        dynamic("kafka.server.DynamicBrokerConfig$", "AllDynamicConfigs", "org.apache.kafka.server.config.DynamicBrokerConfig", "ALL_DYNAMIC_CONFIGS");
        levels();
    }

    /** Prints the broker's configurations that can be changed while it runs, from the first class that has them. */
    static void dynamic(String older, String method, String newer, String field) throws Exception {
        Object names;
        try {
            Class<?> in = Class.forName(older);
            names = in.getMethod(method).invoke(in.getField("MODULE$").get(null));
        } catch (ReflectiveOperationException absent) {
            names = Class.forName(newer).getField(field).get(null);
        }
        String text = names.toString().replaceAll("^[^(\\[]*[(\\[]|[)\\]]$", "");
        for (String name : new TreeSet<>(Arrays.asList(text.split(", "))))
            System.out.println("dynamic " + name);
    }

    static void apis(ApiKeys api) throws Exception {
        Object valid = call(api, "hasValidVersion");
        if (Boolean.FALSE.equals(valid))
            return;
        short high = api.latestVersion();
        try {
            high = (short) ApiKeys.class.getMethod("latestVersion", boolean.class).invoke(api, false);
        } catch (NoSuchMethodException absent) {
        }
        StringBuilder scope = new StringBuilder();
        try {
            Class<?> type = Class.forName("org.apache.kafka.common.message.ApiMessageType$ListenerType");
            Method in = ApiKeys.class.getMethod("inScope", type);
            for (Object listener : type.getEnumConstants())
                if ((boolean) in.invoke(api, listener))
                    scope.append(scope.length() == 0 ? "" : ",").append(listener);
        } catch (ClassNotFoundException | NoSuchMethodException absent) {
            scope.append("ZK_BROKER");
        }
        Object unstable = true;
        try {
            Object type = Class.forName("org.apache.kafka.common.message.ApiMessageType").getMethod("fromApiKey", short.class).invoke(null, api.id);
            unstable = type.getClass().getMethod("latestVersionUnstable").invoke(type);
        } catch (ReflectiveOperationException absent) {
            unstable = false;
        }
        System.out.println("api " + api.id + " " + api.name + " " + api.oldestVersion() + "-" + high + "/" + api.latestVersion() + " " + scope
            + (Boolean.TRUE.equals(unstable) ? " unstable" : ""));
    }

    static Object call(Object on, String name) {
        try {
            return on.getClass().getMethod(name).invoke(on);
        } catch (ReflectiveOperationException absent) {
            return null;
        }
    }

    static ConfigDef configDef(String... places) {
        for (int i = 0; i < places.length; i += 2) {
            try {
                Class<?> in = Class.forName(places[i]);
                Object on = places[i].endsWith("$") ? in.getField("MODULE$").get(null) : null;
                for (Field field : in.getDeclaredFields())
                    if (field.getName().endsWith(places[i + 1]) && ConfigDef.class.isAssignableFrom(field.getType())) {
                        field.setAccessible(true);
                        return (ConfigDef) field.get(on);
                    }
            } catch (ReflectiveOperationException absent) {
            }
        }
        return null;
    }

    static void configs(String kind, ConfigDef def) {
        if (def == null)
            return;
        for (ConfigDef.ConfigKey key : new TreeMap<>(def.configKeys()).values()) {
            Object value = key.defaultValue;
            String text = value == ConfigDef.NO_DEFAULT_VALUE ? "REQUIRED" : value == null ? "null" : "=" + ConfigDef.convertToString(value, key.type);
            System.out.println("config " + kind + " " + key.name + " " + key.type + " " + key.importance + " " + key.internalConfig + " "
                + text.replace("\n", "\\n"));
        }
    }

    static Object[] listed(Object several) {
        return several instanceof Collection ? ((Collection<?>) several).toArray() : (Object[]) several;
    }

    static void levels() {
        try {
            Class<?> level = Class.forName("org.apache.kafka.server.common.MetadataVersion");
            Object latest;
            try {
                latest = level.getField("LATEST_PRODUCTION").get(null);
            } catch (NoSuchFieldException absent) {
                try {
                    latest = level.getMethod("latestProduction").invoke(null);
                } catch (NoSuchMethodException older) {
                    latest = level.getMethod("latest").invoke(null);
                }
            }
            for (Object each : level.getEnumConstants())
                System.out.println("metadata " + call(each, "featureLevel") + " " + call(each, "version") + (each == latest ? " latest" : ""));
        } catch (ReflectiveOperationException absent) {
        }
        for (String name : new String[] {"org.apache.kafka.server.common.Feature", "org.apache.kafka.server.common.Features"}) {
            try {
                for (Object each : listed(Class.forName(name).getField("PRODUCTION_FEATURES").get(null)))
                    System.out.println("feature " + call(each, "featureName") + " " + call(each, "latestProduction"));
            } catch (ReflectiveOperationException absent) {
            }
        }
    }
}
