import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import org.apache.rocketmq.common.annotation.ImportantField;

/** Prints the keys of the given configuration classes, with their defaults and whether they are important. */
public class Defaults {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Class<?> kind = Class.forName(name);
            Object made = kind.getDeclaredConstructor().newInstance();
            for (Field field : kind.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())) {
                    continue;
                }
                field.setAccessible(true);
                Object value = field.get(made);
                String mark = field.isAnnotationPresent(ImportantField.class) ? "important " : "";
                System.out.println(mark + field.getName() + "=" + (value == null ? "" : value));
            }
        }
    }
}
