import java.lang.reflect.Method;
import java.util.TreeSet;

/** Prints the keys that RocketMQ reads into the given configuration classes: those with a setter. */
public class Keys {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            TreeSet<String> keys = new TreeSet<>();
            for (Method method : Class.forName(name).getMethods()) {
                String text = method.getName();
                // The same lookup as in MixAll.properties2Object.
                if (text.startsWith("set") && text.length() > 3 && method.getParameterCount() == 1) {
                    keys.add(text.substring(3, 4).toLowerCase() + text.substring(4));
                }
            }
            String kind = name.substring(name.lastIndexOf('.') + 1);
            for (String key : keys) {
                System.out.println(kind + " " + key);
            }
        }
    }
}
