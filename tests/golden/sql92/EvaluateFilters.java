import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Results of RocketMQ's own filter classes for expressions, and positions in its Bloom filter.
 *
 * <p>Arguments: CASES RESULTS, both JSON. Cases are {"properties": [{..}], "expressions": [..],
 * "names": [..], "sizes": [[error rate, consumers]]}. Results are [[expression, null or [one of
 * TRUE FALSE NULL ERROR for each properties]]], null when it does not compile, and
 * [[error rate, consumers, bits, {name: positions}]] for Bloom filters.
 */
public final class EvaluateFilters {
    public static void main(String[] args) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
        JSONObject cases = JSON.parseObject(text);
        JSONArray rows = new JSONArray();
        for (Object each : cases.getJSONArray("expressions")) {
            rows.add(new JSONArray(Arrays.asList(each, results((String) each, cases))));
        }
        JSONArray blooms = new JSONArray();
        for (Object size : cases.getJSONArray("sizes")) {
            int errorRate = ((JSONArray) size).getIntValue(0);
            int consumers = ((JSONArray) size).getIntValue(1);
            BloomFilter bloom = BloomFilter.createByFn(errorRate, consumers);
            JSONObject positions = new JSONObject(true);
            for (Object each : cases.getJSONArray("names")) {
                positions.put((String) each, bloom.calcBitPositions((String) each));
            }
            blooms.add(new JSONArray(Arrays.asList(errorRate, consumers, bloom.getM(), positions)));
        }
        JSONObject answer = new JSONObject(true);
        answer.put("bloom", blooms);
        answer.put("rows", rows);
        byte[] bytes =
                JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue)
                        .getBytes(StandardCharsets.UTF_8);
        Files.write(Paths.get(args[1]), bytes);
    }

    private static JSONArray results(String expression, JSONObject cases) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (Throwable refused) {
            return null;
        }
        JSONArray results = new JSONArray();
        for (Object each : cases.getJSONArray("properties")) {
            Map<String, String> properties = new HashMap<>();
            ((JSONObject) each).forEach((key, value) -> properties.put(key, (String) value));
            try {
                Object value = compiled.evaluate(new MessageEvaluationContext(properties));
                results.add(String.valueOf(value).toUpperCase());
            } catch (Throwable thrown) {
                results.add("ERROR");
            }
        }
        return results;
    }

    private EvaluateFilters() {}
}
