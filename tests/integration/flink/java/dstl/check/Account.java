package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.List;
import java.util.Map;

/** The POJO of the checker: {@code account}. As JSON an object of its fields. */
public class Account {
    public String owner;
    public long amount;
    public Integer level;
    public Map<String, Double> rates;
    public List<String> tags;

    ObjectNode toJson(ValueType ratesType, ValueType tagsType) {
        ObjectNode object = Json.object().put("amount", amount).put("level", level).put("owner", owner);
        object.set("rates", ratesType.nullableToJson(rates));
        object.set("tags", tagsType.nullableToJson(tags));
        return object;
    }

    @SuppressWarnings("unchecked")
    static Account fromJson(JsonNode node, ValueType ratesType, ValueType tagsType) {
        Account account = new Account();
        account.owner = node.get("owner").textValue();
        account.amount = node.get("amount").longValue();
        account.level = node.get("level").isNull() ? null : node.get("level").intValue();
        JsonNode rates = node.get("rates");
        account.rates = rates.isNull() ? null : (Map<String, Double>) ratesType.fromJson(rates);
        JsonNode tags = node.get("tags");
        account.tags = tags.isNull() ? null : (List<String>) tagsType.fromJson(tags);
        return account;
    }
}
